"""The learner: training from a remote replay, alone or as one of several replicas."""
