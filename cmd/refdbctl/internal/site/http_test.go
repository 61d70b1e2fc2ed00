package site

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/smarthttp"
)

func TestWhereSiteHTTPListens(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		at     smarthttp.Listen
		user   string
		cache  int
		refuse string
	}{
		{smarthttp.Listen{Address: "127.0.0.1:9470"}, "X-User", 256, ""},
		{smarthttp.Listen{Address: "[::1]:9470"}, "X-User", 256, ""},
		{smarthttp.Listen{Address: "localhost:9470"}, "X-User", 256, ""},
		{smarthttp.Listen{Address: "/run/refdb/http", Metrics: "/run/refdb/metrics"}, "X-User", 1, ""},
		{smarthttp.Listen{Address: "0.0.0.0:9470"}, "", 256, ""},
		{smarthttp.Listen{Address: "0.0.0.0:9470"}, "X-User", 256, "could claim to be anybody"},
		{smarthttp.Listen{Address: "git.example.com:9470"}, "X-User", 256, "could claim to be anybody"},
		{smarthttp.Listen{Address: ":9470"}, "", 256, "--listen"},
		{smarthttp.Listen{Address: "http"}, "", 256, "--listen"},
		{smarthttp.Listen{Address: "127.0.0.1:9470", Metrics: "x"}, "", 256, "--metrics"},
		{smarthttp.Listen{Address: "127.0.0.1:9470"}, "", 0, "--cache"},
	} {
		err := checkListen(row.at, row.user, row.cache)
		if row.refuse == "" && err != nil || row.refuse != "" && (err == nil || !strings.Contains(err.Error(), row.refuse)) {
			t.Errorf("%+v, %q, %d: %v", row.at, row.user, row.cache, err)
		}
	}
}
