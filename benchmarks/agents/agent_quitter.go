package agents

// giveUpAtOnce is an agent that tells the user that the task has failed, at the first failure.
func giveUpAtOnce(failure) decision { return decision{do: giveUp} }
