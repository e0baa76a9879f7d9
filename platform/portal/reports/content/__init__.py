"""Content of reports: objects of the project read when a report is opened, and drawn."""
