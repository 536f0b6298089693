package redisfleet

import (
	"context"
	"slices"
	"time"
)

// list reads all breakers of the store's memory, a page after the other. It returns nil if that is in vain: the member
// has heard of all meanwhile, or leaves, or the store has another memory now.
func (e *engine) list(ctx, run context.Context, reply syncReply) (map[string]entry, error) {
	all := make(map[string]entry)
	for p := reply.Page; ; {
		if run.Err() != nil || e.hasHeard(reply.memory) { // what it didn't know was under way
			return nil, nil
		}
		if err := e.read(ctx, p.IDs, all); err != nil {
			return nil, err
		}
		if p.Next == "0" {
			return all, e.readUnlisted(ctx, reply.Version, all)
		}

		var err error
		p, err = bounded(ctx, &e.hanging, func(ctx context.Context) (page, error) { return e.store.list(ctx, p.Next) })
		if err != nil {
			return nil, err
		}
		if p.Since != reply.Since { // what isn't listed may be in the memory before it
			e.syncAgain()
			return nil, nil
		}
	}
}

// read reads breakers that it hasn't read yet. One that can't be read is an empty entry. Leases are renewed meanwhile.
func (e *engine) read(ctx context.Context, ids []string, all map[string]entry) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		_, ok := all[id]
		return ok
	})
	for ids := range slices.Chunk(ids, maxBatch) {
		some, err := bounded(ctx, &e.hanging, func(ctx context.Context) ([]entry, error) {
			return e.store.read(ctx, ids)
		})
		if err != nil {
			return err
		}

		for _, id := range ids {
			all[id] = entry{}
		}
		for _, x := range some {
			x.read = time.Now()
			all[x.ID] = x
		}
		if err := e.renew(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readUnlisted reads the breakers that the member knows, of this version of the memory at most, and no page has had,
// unless they are gone.
func (e *engine) readUnlisted(ctx context.Context, version int64, all map[string]entry) error {
	var ids []string
	e.mu.Lock()
	for id, x := range e.breakers {
		if _, listed := all[id]; !listed && x.Version <= version {
			ids = append(ids, id)
		}
	}
	e.mu.Unlock()
	if err := e.read(ctx, ids, all); err != nil {
		return err
	}
	for _, id := range ids {
		if all[id].ID == "" {
			delete(all, id)
		}
	}
	return nil
}

// learn applies all that the store remembers. A breaker that could not be read any more has changed since, or the store
// has lost its memory meanwhile: the next sync says which.
func (e *engine) learn(asked time.Time, reply syncReply, all map[string]entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	gone := make(map[string]entry, len(e.breakers))
	for id := range e.breakers {
		if _, listed := all[id]; !listed {
			gone[id] = entry{ID: id, State: "closed", Version: reply.Version}
		}
	}

	e.knows(reply.memory)
	e.saw(reply.Version)
	for _, x := range gone { // first, which makes room
		e.apply(x, asked) // unless it has a newer version
	}
	for _, x := range all {
		if x.ID != "" {
			e.apply(x, asked) // which doubts if the member knows more
		}
	}
	for id := range e.versions {
		if _, ok := e.breakers[id]; !ok && len(e.versions) > maxBreakers {
			delete(e.versions, id)
		}
	}
}
