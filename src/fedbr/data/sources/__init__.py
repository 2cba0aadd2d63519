"""One file each data set."""
