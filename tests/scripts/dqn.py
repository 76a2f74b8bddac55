"""DQN on a toy chain, after the PyTorch tutorial: replay memory, policy and target net, soft updates."""
# run: status=healthy steps=77
# when: thorough
import math
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

random.seed(0)
torch.manual_seed(0)
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
N, BATCH_SIZE, GAMMA, TAU = 6, 32, 0.95, 0.05


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(N, 32)
        self.layer2 = nn.Linear(32, 2)

    def forward(self, x):
        return self.layer2(F.relu(self.layer1(x)))


policy_net, target_net = DQN(), DQN()
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=3e-3, amsgrad=True)
memory = ReplayMemory(500)
steps_done = updates = 0


def one_hot(i):
    return F.one_hot(torch.tensor([i]), N).float()


def select_action(state):
    global steps_done
    eps = 0.05 + 0.85 * math.exp(-steps_done / 60)
    steps_done += 1
    if random.random() > eps:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(2)]])


def optimize_model():
    global updates
    if len(memory) < BATCH_SIZE:
        return
    batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
    non_final = torch.tensor([s is not None for s in batch.next_state])
    q = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    nxt = torch.zeros(BATCH_SIZE)
    with torch.no_grad():
        nxt[non_final] = target_net(torch.cat([s for s in batch.next_state if s is not None])).max(1).values
    expected = nxt * GAMMA + torch.cat(batch.reward)
    loss = nn.SmoothL1Loss()(q, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    updates += 1


for episode in range(12):
    pos, total = 0, 0.0
    for t in range(20):
        state = one_hot(pos)
        action = select_action(state)
        pos = max(0, pos + (1 if action.item() else -1))
        done = pos == N - 1
        reward = 1.0 if done else -0.01
        memory.push(state, action, None if done else one_hot(pos), torch.tensor([reward]))
        optimize_model()
        tsd, psd = target_net.state_dict(), policy_net.state_dict()
        for key in psd:
            tsd[key] = psd[key] * TAU + tsd[key] * (1 - TAU)
        target_net.load_state_dict(tsd)
        total += reward
        if done:
            break
    print(f"episode {episode} reward {total:.2f} after {t + 1} steps, {updates} updates")
torch.save(policy_net.state_dict(), "weights.pt")
