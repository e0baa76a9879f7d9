from portal.core.apps import Room


class AccountsConfig(Room):
    default = True
    name = "portal.accounts"
    label = "accounts"
