"""Many numbers into few: `arrays` in NumPy, `tensors` on the device. The two halves do not import each other."""
