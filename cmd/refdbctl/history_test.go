package main

import (
	"time"
)

type historyJSON struct {
	Epochs []struct {
		Epoch, Reason string
		First         int64
		Began         time.Time
		By            *string
	}
	Upto, Pruned int64
	PrunedTime   *time.Time `json:"pruned_time"`
	Begin        time.Time
}

type followerJSON struct {
	Name       string
	Read       int64
	Seen       time.Time
	AgeSeconds *float64 `json:"age_seconds"`
	Cursor     *string
}
