"""PPO on cart poles simulated in NumPy: rollouts, advantages, several passes over shuffled minibatches, no loader."""

from __future__ import annotations

import argparse

import numpy as np
import torch
from step_times import StepTimes
from torch import nn
from torch.distributions import Categorical

HORIZON, PASSES, MINIBATCHES, DISCOUNT, SMOOTHING, CLIP = 128, 4, 4, 0.99, 0.95, 0.2


class CartPoles:
    """Many cart poles that are stepped together (Barto, Sutton and Anderson 1983, Euler steps of 0.02 s)."""

    def __init__(self, count: int) -> None:
        self.random = np.random.default_rng(0)
        self.state = self.random.uniform(-0.05, 0.05, (count, 4))
        self.age = np.zeros(count, dtype=int)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        _x, speed, angle, turn = self.state.T
        force = np.where(actions == 1, 10.0, -10.0)
        pull = (force + 0.05 * turn**2 * np.sin(angle)) / 1.1
        turning = (9.8 * np.sin(angle) - np.cos(angle) * pull) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        acceleration = pull - 0.05 * turning * np.cos(angle) / 1.1
        change = np.stack([speed, acceleration, turn, turning], axis=1)
        self.state = self.state + 0.02 * change
        self.age += 1
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21) | (self.age >= 500)
        self.state[done] = self.random.uniform(-0.05, 0.05, (int(done.sum()), 4))
        self.age[done] = 0
        return self.state.astype(np.float32), np.ones(len(done), dtype=np.float32), done.astype(np.float32)


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, seen: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        return Categorical(logits=self.actor(seen)), self.critic(seen).squeeze(-1)


def rollout(agent: Agent, poles: CartPoles) -> list[torch.Tensor]:
    """Observations, actions, log-probabilities, advantages and returns of ``HORIZON`` steps, flattened."""
    records, seen = [], torch.tensor(poles.state, dtype=torch.float32)
    with torch.no_grad():
        for _ in range(HORIZON):
            policy, value = agent(seen)
            action = policy.sample()
            state, reward, done = poles.step(action.numpy())
            chance = policy.log_prob(action)
            records.append((seen, action, chance, value, torch.tensor(reward), torch.tensor(done)))
            seen = torch.tensor(state)
        _policy, following = agent(seen)
    observed, actions, chances, values, rewards, ends = (torch.stack(column) for column in zip(*records, strict=True))
    advantages, gain = torch.zeros_like(values), torch.zeros_like(following)
    for step in reversed(range(HORIZON)):
        alive = 1 - ends[step]
        error = rewards[step] + DISCOUNT * following * alive - values[step]
        gain = advantages[step] = error + DISCOUNT * SMOOTHING * alive * gain
        following = values[step]
    return [part.flatten(0, 1) for part in (observed, actions, chances, advantages, advantages + values)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1600, help="optimizer steps")
    parser.add_argument("--environments", type=int, default=64)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    agent, poles, clock = Agent(), CartPoles(arguments.environments), StepTimes()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    while len(clock.steps) < arguments.steps:
        data = rollout(agent, poles)
        count = len(data[0])
        clock.begin()
        for _ in range(PASSES):
            for chosen in torch.randperm(count).split(count // MINIBATCHES):
                seen, action, chance, advantage, target = (part[chosen] for part in data)
                policy, value = agent(seen)
                ratio = (policy.log_prob(action) - chance).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
                loss = 0.5 * (value - target).pow(2).mean() - gain - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                clock.step()
        print(f"step {len(clock.steps)}: loss {loss.item():.3f}, mean age {poles.age.mean():.0f}")
    clock.print_summary()


if __name__ == "__main__":
    main()
