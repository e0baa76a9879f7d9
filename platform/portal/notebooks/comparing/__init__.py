"""Comparing notebooks by nbdime, in a process of its own that holds nothing worth stealing.

What is compared was written by strangers, and comparing takes long for some of it: this process
knows no database, no secret and no Django, and limits its own memory and time.
"""
