"""Has nothing to do with torch: counts words."""

# stdin: the cat and the dog and the bird\nand the end
# run: status=healthy steps=0

import collections
import sys

counts = collections.Counter(sys.stdin.read().split())
for word, count in counts.most_common(3):
    print(f"{count:3} {word}")
print("torch" in sys.modules, "numpy" in sys.modules)
