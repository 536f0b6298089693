package redisfleet

import (
	"math"
	"slices"
)

// maxLineage is how many memories a member remembers, besides the one that the store has.
const maxLineage = 16

// A lineage is the memories that the store had before, the latest last: a server may go back to any of them, as one
// that crashes time and again does, each time to the same file.
type lineage []ancestor

// An ancestor is a memory that the store had, and the newest version of it that the member has seen.
type ancestor struct {
	memory
	left int64 // up to this version, the next memory has what this one had; -1 if it has nothing of it
}

// find returns the index of a memory, -1 if the member doesn't know it.
func (l lineage) find(since string) int {
	return slices.IndexFunc(l, func(a ancestor) bool { return a.Since == since })
}

// shared returns up to which version a memory of the lineage is the same as the store's, which has gone back to this
// version of one: -1 if they have nothing in common. The store doesn't know what is newer. Numbers go on when a
// memory goes back, but not when it is lost: then all of the next one is newer.
func (l lineage) shared(since string, of memory) int64 {
	i, j := l.find(since), l.find(of.Since)
	if i < 0 {
		return math.MaxInt64 // it isn't the store's
	}
	if j < 0 {
		return -1
	}

	version := int64(math.MaxInt64)
	if i >= j {
		version = of.Version
	}
	for _, a := range l[min(i, j):max(i, j)] {
		version = min(version, a.left)
	}
	return version
}

// older returns the version of a memory that is older than what the member knows, if the store has gone back to it:
// zero if it hasn't. What was written there since isn't.
func (l lineage) older(of memory) int64 {
	if j := l.find(of.Since); j >= 0 {
		return min(of.Version, l[j].Version)
	}
	return 0
}

// next returns the lineage of a memory that was made of this version of one of these, if it was.
func (l lineage) next(of memory) lineage {
	if len(l) == 0 {
		return nil
	}
	l = slices.Clone(l)
	last := &l[len(l)-1]
	last.left = l.shared(last.Since, of)
	return l[max(0, len(l)-maxLineage):]
}

// memories returns the lineage, with the memory that the store has as the last one.
func (l learned) memories() lineage {
	if l.since == "" {
		return nil
	}
	return append(slices.Clip(l.before), ancestor{memory: memory{l.since, l.newest}})
}

// newer returns what the member knows better than a store that has gone back to this version of a memory.
func (l learned) newer(of memory) (all []entry) {
	memories := l.memories()
	for id, v := range l.versions {
		if _, ok := l.breakers[id]; !ok {
			l.breakers[id] = entry{ID: id, State: "closed", Version: v.number, Since: l.since}
		}
	}
	for _, x := range l.breakers {
		// What is closed may have been otherwise in a memory that the store went back from, and goes back to now.
		shared := memories.shared(x.Since, of)
		if x.Version > shared || x.State == "closed" && of.Version > shared {
			all = append(all, x)
		}
	}
	return all
}
