"""From a recipe to a result folder. Read ``loop`` first: it plays one run.

Here are the runner, the engines that spread runs over the cores, the result folder, sweeps and
forecasts. Nothing here knows a method or a metric by name, writes reports, or draws.
"""
