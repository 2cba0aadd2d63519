"""The data sets: one file each.

A file says how its data set is read, what is published of it, and how it stands in DATASETS. It
does not know how samples are split over clients.
"""
