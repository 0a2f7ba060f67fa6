"""The environments of pettingllms, one folder each; made with `pettingllms.make(id)`."""
