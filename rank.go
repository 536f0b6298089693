package resilience

// A rank tells which of several errors that are joined decide: those of the highest rank among them, whatever their
// order is. Of several of these, the first one's statement counts.
type rank uint8

const (
	rankCanceled rank = iota // what the tool itself has canceled
	rankNeutral              // says nothing about the backend
	rankUnmade               // calls of the tool's that a Connector knows not to have been made
	rankRejected             // those that a guard has rejected: it knows more, and they aren't retried
	rankUnknown              // nothing is known of it
	rankMistake              // what a guard has said of a call within that failed by a mistake: no program's words
	rankSaid                 // trouble, an answer that rejects the request, or what a program says on purpose
)

// addRank notes the rank of err, which has its other facts.
func (f *facts) addRank(err error) {
	e, _ := err.(*Error)
	isBare := e != nil && e.saysNothing() && !f.said // whatever its cause is

	r := rankSaid
	switch {
	case f.neutral:
		r = rankNeutral
	case isBare:
		r = rankCanceled
	case f.rejected:
		r = rankRejected
	case f.notMade:
		r = rankUnmade
	case f.said && !f.derived:
		if f.explicit.isMistake() && f.says == ClassInvalid && !f.final {
			r = rankMistake
		}
	case f.isTrouble(), f.sign == signRejected:
	case f.has(isCanceled):
		if f.wraps {
			return // something of which nothing is known may be joined with it
		}
		r = rankCanceled
	default:
		r = rankUnknown
	}
	f.rank = r
}

// giveWay leaves, of an error beside one of a higher rank, what must hold for all joined errors. What was rejected or
// not made agents should still read, if no other one tells them anything, and what an author has written. An error of
// which nothing is known leaves all that it is.
func (f *facts) giveWay() {
	rejects := f.rejects
	switch f.rank {
	case rankUnknown:
		if f.derived {
			f.said, f.says, f.timeout, f.derived = false, 0, false, false
			if f.explicit.isAsSealed() {
				f.explicit = nil
			}
		}
		return
	case rankUnmade, rankRejected:
		rejects = f.explicit
	}

	f.among &= isUnfinished | isCanceled
	f.statement = statement{rejects: rejects, notMade: true, rejected: true, nested: f.nested, counted: f.counted}
	f.evidence = evidence{noEffect: f.noEffect, harmless: f.harmless, repeated: f.repeated}
}
