"""Where the files of models rest."""
