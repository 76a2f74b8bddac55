"""Run as `python -m recipes.mising`, which is misspelled: Python says so in one line."""

# module: recipes.mising
# exit: 1
# stderr: No module named recipes.mising
# exception: No module named recipes.mising
# run: status=healthy steps=0
# when: thorough
