"""A file of unit tests, one of which trains, run by unittest.main: it exits with 1 as one of them fails."""

# args: -v Training
# exit: 1
# stderr: FAILED (failures=1, skipped=1)
# run: status=healthy steps=12
# when: thorough
# loose: stderr

import sys
import unittest

import torch


class Training(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self):
        self.optimizer.zero_grad()
        loss = (self.model(torch.eye(2)) - 1).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def test_1_loss_falls(self):
        losses = [self.step() for _ in range(12)]
        print("losses", f"{losses[0]:.4f} {losses[-1]:.4f}")
        self.assertLess(losses[-1], losses[0])
        torch.save(self.model.state_dict(), "weights.pt")

    def test_2_fails(self):
        self.assertEqual(tuple(self.model.weight.shape), (2, 1))

    @unittest.skip("no such device")
    def test_3_skipped(self):
        self.fail()


class Other(unittest.TestCase):
    def test_not_asked_for(self):
        self.fail()


if __name__ == "__main__":
    print(sys.argv[1:])
    unittest.main()
