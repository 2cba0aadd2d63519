"""From a recipe to a result folder: the loop (read ``loop`` first), the runner, the engines that
spread runs over the cores, the folder, sweeps and forecasts.

It knows no method and no metric by name, has no words for people about results, and draws nothing.
"""
