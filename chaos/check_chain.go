package main

import (
	"fmt"
	"slices"
)

// A chain is the values that a ref held, one after the other, from the first
// that was written.
type chain struct {
	ref    string
	values []*update // what wrote each
	last   bool      // it ends with what the database holds
}

// chains are the chains of one ref: one, and another for each loss of all data.
type chains struct {
	ref     string
	writers map[string]*update // by value
	olds    map[string]string  // the value that each replaces
	roots   map[string]root    // by value
	byRoot  map[string]*chain
	at      map[string]place // by value
	missing []string         // values that nobody wrote
}

// A root is the first value of a chain, and how many steps another value is from it.
type root struct {
	value string
	steps int
}

type place struct {
	chain *chain
	index int
}

// buildChains puts the moves of each ref together. Each value is written by one
// update only, so that there is one way back from it.
func buildChains(w *checkInput) map[string]*chains {
	all := make(map[string]*chains)
	for _, u := range w.updates {
		for _, m := range u.moves {
			c, ok := all[m.Ref]
			if !ok {
				c = &chains{
					ref: m.Ref, writers: make(map[string]*update), olds: make(map[string]string),
					roots: make(map[string]root), byRoot: make(map[string]*chain), at: make(map[string]place),
				}
				all[m.Ref] = c
			}
			c.writers[m.New], c.olds[m.New] = u, m.Old
		}
	}
	for ref, c := range all {
		c.build(w.final[ref])
	}
	return all
}

// build makes the chain that ends with final, and for each other root the one
// that ends with the last value known to have been written.
func (c *chains) build(final string) {
	tips := make(map[string]string)
	for value, u := range c.writers {
		if u.outcome != accepted {
			continue
		}
		r, ok := c.rootOf(value)
		if !ok {
			continue
		}
		if tip, ok := tips[r.value]; !ok || c.roots[tip].steps < r.steps {
			tips[r.value] = value
		}
	}
	last, ok := c.rootOf(final)
	if ok {
		tips[last.value] = final
	}
	for root, tip := range tips {
		ch := &chain{ref: c.ref, last: ok && root == last.value}
		for value := tip; value != ""; value = c.olds[value] {
			ch.values = append(ch.values, c.writers[value])
		}
		slices.Reverse(ch.values)
		c.byRoot[root] = ch
		for value, i := tip, len(ch.values)-1; value != ""; value, i = c.olds[value], i-1 {
			c.at[value] = place{ch, i}
		}
	}
}

// rootOf follows a value back to the first of its chain. It returns false if
// nobody wrote one of the values on the way.
func (c *chains) rootOf(value string) (root, bool) {
	var way []string
	for {
		if r, ok := c.roots[value]; ok {
			return c.mark(way, r), r.value != ""
		}
		if _, ok := c.writers[value]; !ok {
			if !slices.Contains(c.missing, value) {
				c.missing = append(c.missing, value)
			}
			return c.mark(way, root{}), false
		}
		way = append(way, value)
		if c.olds[value] == "" {
			return c.mark(way, root{value, -1}), true
		}
		value = c.olds[value]
	}
}

// mark notes the root of the values on a way.
func (c *chains) mark(way []string, r root) root {
	for _, value := range slices.Backward(way) {
		r.steps++
		c.roots[value] = r
	}
	return r
}

// gaps returns a violation for each value that nobody wrote.
func (c *chains) gaps() []violation {
	var found []violation
	for _, value := range c.missing {
		found = append(found, violation{Text: fmt.Sprintf("%s held %q, which nobody wrote", c.ref, value)})
	}
	return found
}
