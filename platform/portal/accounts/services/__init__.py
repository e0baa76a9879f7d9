"""What a person may ask of the room: keyword-only verbs, each one transaction, each audited."""
