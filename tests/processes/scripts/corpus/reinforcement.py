"""Reinforcement learning: episodes are played, then weights change in bursts. No loader, and never `forward`."""

import argparse

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(4, 2))

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return states @ self.weights


@torch.no_grad()
def play(policy: Policy, moves: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    states, actions, rewards = [], [], []
    state = torch.randn(4)
    for _ in range(moves):
        action = torch.distributions.Categorical(logits=policy.logits(state)).sample()
        states.append(state)
        actions.append(action)
        rewards.append((state[0] > 0) == (action == 1))
        state = 0.9 * state + 0.1 * torch.randn(4)
    return torch.stack(states), torch.stack(actions), torch.stack(rewards).float()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    step = 0
    while step < arguments.steps:
        states, actions, rewards = play(policy, 128)
        for _ in range(10):  # the burst
            likely = torch.distributions.Categorical(logits=policy.logits(states)).log_prob(actions)
            loss = -(likely * (rewards - rewards.mean())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)


if __name__ == "__main__":
    main()
