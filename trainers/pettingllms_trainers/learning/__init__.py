"""From rollout trees to a loss: groups, advantages, mini-batches, packed batches, loss."""
