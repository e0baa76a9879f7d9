from portal.core.apps import App


class AccountsConfig(App):
    default = True
    name = "portal.accounts"
    label = "accounts"
