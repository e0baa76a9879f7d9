from portal.core.apps import App


class TrainingConfig(App):
    default = True
    name = "portal.training"
    label = "training"
