"""A package that is run by its name, as a whole and in parts."""

print("package", __name__)
