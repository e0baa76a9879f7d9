from portal.core.apps import Room


class TrainingConfig(Room):
    default = True
    name = "portal.training"
    label = "training"
