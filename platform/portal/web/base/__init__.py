"""What all pages share: layout, navigation, lists, forms, errors."""
