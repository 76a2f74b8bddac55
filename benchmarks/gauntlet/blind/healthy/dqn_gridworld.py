"""DQN on a small gridworld with replay memory and target network: the targets move, the data distribution drifts with epsilon, and the target net is in no optimizer; episodes get short."""
# expects:
# source: https://docs.pytorch.org/tutorials/intermediate/reinforcement_q_learning.html
import math
import random
from collections import deque, namedtuple
import torch
import torch.nn as nn
import torch.optim as optim

random.seed(3)
torch.manual_seed(3)
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward", "done"))
SIZE = 5
WALLS = {(1, 1), (2, 1), (3, 3), (1, 3)}
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


class Grid:
    def reset(self):
        while True:
            self.pos = (random.randrange(SIZE), random.randrange(SIZE))
            if self.pos not in WALLS and self.pos != (4, 4):
                break
        self.t = 0
        return self.obs()

    def obs(self):
        v = torch.zeros(2 * SIZE)
        v[self.pos[0]] = 1
        v[SIZE + self.pos[1]] = 1
        return v

    def step(self, a):
        self.t += 1
        p = (self.pos[0] + MOVES[a][0], self.pos[1] + MOVES[a][1])
        if 0 <= p[0] < SIZE and 0 <= p[1] < SIZE and p not in WALLS:
            self.pos = p
        goal = self.pos == (4, 4)
        return self.obs(), (1.0 if goal else -0.02), goal, self.t >= 30


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(2 * SIZE, 64)
        self.layer2 = nn.Linear(64, 64)
        self.layer3 = nn.Linear(64, 4)

    def forward(self, x):
        return self.layer3(torch.relu(self.layer2(torch.relu(self.layer1(x)))))


policy_net, target_net = DQN(), DQN()
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
memory = deque(maxlen=5000)
BATCH, GAMMA, TAU = 64, 0.95, 0.01
steps_done = 0


def select_action(s):
    eps = 0.05 + 0.85 * math.exp(-steps_done / 500)
    if random.random() < eps:
        return random.randrange(4)
    with torch.no_grad():
        return policy_net(s).argmax().item()


def optimize_model():
    if len(memory) < 200:
        return
    b = Transition(*zip(*random.sample(memory, BATCH)))
    s, ns = torch.stack(b.state), torch.stack(b.next_state)
    a = torch.tensor(b.action).unsqueeze(1)
    r, d = torch.tensor(b.reward), torch.tensor(b.done, dtype=torch.float)
    q = policy_net(s).gather(1, a).squeeze(1)
    with torch.no_grad():
        target = r + GAMMA * (1 - d) * target_net(ns).max(1).values
    loss = nn.functional.smooth_l1_loss(q, target)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    for tp, pp in zip(target_net.parameters(), policy_net.parameters()):
        tp.data.mul_(1 - TAU).add_(pp.data, alpha=TAU)
    return loss.item()


env = Grid()
lengths = []
for ep in range(160):
    s = env.reset()
    ret, l = 0.0, None
    while True:
        a = select_action(s)
        ns, r, done, trunc = env.step(a)
        memory.append(Transition(s, a, ns, r, done))
        s = ns
        steps_done += 1
        ret += r
        l = optimize_model()
        if done or trunc:
            break
    lengths.append(env.t)
    if ep % 20 == 19:
        print(f"episode {ep + 1} steps {steps_done} avg length {sum(lengths[-20:]) / 20:.1f} last return {ret:.2f} loss {l}")
