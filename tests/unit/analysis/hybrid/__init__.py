"""Reports and checks of hybrid trainings."""
