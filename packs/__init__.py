"""Example packs: work that Wolf Pack is shown with. They use only wolfpack's public names."""
