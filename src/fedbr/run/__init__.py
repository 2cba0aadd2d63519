"""From a recipe to a result folder: the loop, the runner, the folder, sweeps, forecasts. No words
for people.
"""
