"""What to train on what: the recipe as TOML, its overrides, and the recipes that come with the
package.
"""
