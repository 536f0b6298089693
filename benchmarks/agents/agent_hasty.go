package agents

// retryAtOnce is an agent that makes a failed call again, at once and whatever it reads.
func retryAtOnce(failure) decision { return decision{do: again} }
