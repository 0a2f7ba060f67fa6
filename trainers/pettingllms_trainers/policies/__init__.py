"""Who plays a role: policies with weights behind their engines, and fixed policies."""
