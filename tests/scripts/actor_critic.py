'''Actor-critic, one optimizer each. Two losses a step, two backwards.'''
# run: status=healthy steps=50
# when: thorough

import torch as th
from torch import nn
from torch.nn import functional as F

th.manual_seed(11)

actor  = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
pi_opt = th.optim.RMSprop(actor.parameters(),  lr=3e-3)
v_opt  = th.optim.RMSprop(critic.parameters(), lr=1e-2)

# contextual bandit: the best of three arms depends on the context
arms = th.randn(4, 3)

avg = None
for step in range(50):
    obs    = th.randn(64, 4)
    dist   = th.distributions.Categorical(logits=actor(obs))
    act    = dist.sample()
    reward = (obs @ arms).gather(1, act[:, None]).squeeze(1) + 0.5 * th.randn(64)

    value  = critic(obs).squeeze(1)
    adv    = (reward - value).detach()

    v_loss = F.mse_loss(value, reward)
    v_opt.zero_grad(); v_loss.backward(); v_opt.step()

    pi_loss = -(dist.log_prob(act) * adv).mean() - 0.01 * dist.entropy().mean()
    pi_opt.zero_grad(); pi_loss.backward(); pi_opt.step()

    avg = reward.mean().item() if avg is None else 0.9 * avg + 0.1 * reward.mean().item()
    if step % 10 == 9: print("step", step + 1, "reward", round(avg, 5), "pi", round(pi_loss.item(), 5), "v", round(v_loss.item(), 5))

th.save([actor.state_dict(), critic.state_dict()], "weights.pt")
