"""Line ends as on Windows, tabs,
 a form feed, and no line end after the last line."""

# run: status=healthy steps=4
# when: thorough

import torch

text = """two
lines"""
print(repr(text), repr(__doc__[-9:]))
def main():
	w = torch.ones(2, requires_grad=True)
	o = torch.optim.SGD([w], lr=0.1)
	for i in range(4):
		o.zero_grad(); w.square().sum().backward(); \
			o.step()
	print(w.tolist(), main.__code__.co_firstlineno)
	torch.save(w, "weights.pt")
if __name__ == "__main__": main()