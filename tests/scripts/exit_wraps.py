"""An exit code that does not fit into a byte: 256 + 5 is 5 to a shell."""

# exit: 5
# run: status=healthy steps=0
# when: thorough

import sys

print("leaving")
sys.exit(256 + 5)
