from hypothesis import Phase, settings

# For scripts/mutate: a failure is enough, the smallest one is not looked for.
settings.register_profile("quick", phases=(Phase.explicit, Phase.reuse, Phase.generate))
