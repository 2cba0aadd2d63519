"""Tasks and replies carried by Flower. The only room that imports flwr, and only where it is needed."""
