package config

import "strings"

// HandedOver reports whether git hands a ref that a push creates, or changes, to the hook proc-receive, by the values of
// receive.procReceiveRefs. git-config(1) describes them.
func HandedOver(patterns []string, ref string, creates bool) bool {
	for _, pattern := range patterns {
		flags, prefix, has := strings.Cut(pattern, ":")
		if !has {
			flags, prefix = "", pattern
		}
		kind := "m"
		if creates {
			kind = "a"
		}
		if strings.ContainsAny(flags, "adm") && !strings.Contains(flags, kind) {
			continue
		}
		rest, under := strings.CutPrefix(ref, strings.TrimRight(prefix, "/"))
		if matches := under && (rest == "" || rest[0] == '/'); matches != strings.Contains(flags, "!") {
			return true
		}
	}
	return false
}
