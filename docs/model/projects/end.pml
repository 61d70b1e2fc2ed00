/* When trouble has stopped, and all that could happen has happened. */
#define is_astray(s, k) (dir(s, k).astray)
#define is_elsewhere(s, k) (dir(s, k).at == NOWHERE && dir(s, k).known)
#define is_home(s, k) (dir(s, k).at == db[k].shown && dir(s, k).recorded == db[k].shown && dir(s, k).here == db[k].value && !dir(s, k).locked)
#ifdef CLONES
#define has_gone(s, k) false
#else
#define has_gone(s, k) (dir(s, k).at == NOWHERE || dir(s, k).at == ASIDE)
#endif
#define in_order(s, k) (is_astray(s, k) || is_elsewhere(s, k) || blocked_by_stray(s, k) || has_gone(s, k) || \
	(db[k].shown == NO_NAME -> (dir(s, k).at == ASIDE || dir(s, k).at == NOWHERE || !removals) : is_home(s, k)))
#if KEYS == 2
#define blocked_by_stray(s, k) (dir(s, other(k)).at == db[k].shown && is_astray(s, other(k)))
#define site_rested(s) (in_order(s, 0) && in_order(s, 1))
#else
#define blocked_by_stray(s, k) false
#define site_rested(s) in_order(s, 0)
#endif
#if defined(REMOVES) || defined(ON_DELETE)
#define removals true
#else
#define removals false
#endif
#if SITES == 2
#define rested (site_rested(0) && site_rested(1))
#else
#define rested site_rested(0)
#endif
