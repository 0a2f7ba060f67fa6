"""Ways of playing the episodes of a level: small objects that tell players what to do."""
