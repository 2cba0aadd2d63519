"""The same experiment on a real federation: what the server and the sites make of a recipe."""
