#!/usr/bin/env bash
# Checks the models of the protocols with Spin, exhaustively, and that they catch
# seeded mistakes. Usage: docs/model/run.sh [--trail VARIANT]. The first prints a
# table and exits with 1 unless every line is as it should be; the second shows
# the shortest counterexample of one variant, step by step. It installs Spin and
# a C compiler with apt-get where they are missing and it may.
set -euo pipefail

model=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
megabytes=${MODEL_MEMORY:-3000} # for the search; more is an error, not a guess

# variant | model | what must come of it | flags | what it is
# What holds keeps all promises of its model, P1 to P7, S1 to S5, W1 to W4, R1, H1 to H3,
# V1 to V7, A1 to A3, C1 to C4 or J1 to J6, unless its flags name one. A promise in the third column must be broken, an event must happen.
# -DFOREVER=w also searches for endless runs in which waiter w waits for ever.
variants='
locks                 |protocol|holds |-DSITES=3                                             |three sites: acquire, beat, release
pushes                |push    |holds |-DAGAIN -DREJECTED -DOPERATOR                         |pushes at a site in trouble and at one without; operator
updates               |protocol|holds |-DSITES=2 -DUPDATES                                   |two sites: acquire, release, fenced and unfenced updates
operator              |protocol|holds |-DSITES=2 -DOPERATOR -DPROMISE=2                      |P2 even if an operator deletes locks by force
reclaim               |protocol|event |-DSITES=2 -DEVENT=1                                   |a stale lock is taken over
adoption              |protocol|event |-DSITES=2 -DEVENT=2                                   |an acquire finds the row of its own lost reply
refused-write         |protocol|event |-DSITES=2 -DEVENT=3 -DUPDATES                         |a frozen holder'\''s fenced update is refused
passed-lock           |protocol|event |-DSITES=2 -DEVENT=4 -DUPDATES                         |an unfenced update passes a stale lock
lost-by-beat          |protocol|event |-DSITES=2 -DEVENT=5 -DOPERATOR                        |a beat finds its lock gone
expiry                |protocol|event |-DSITES=2 -DEVENT=6                                   |a holder stops though its lock was not taken
late-request          |protocol|event |-DSITES=2 -DEVENT=7                                   |a request takes effect after it was given up on
resent-write          |protocol|event |-DSITES=2 -DEVENT=8 -DUPDATES                         |an update sent twice is found written
certain-release       |protocol|event |-DSITES=2 -DEVENT=9                                   |a release without a reply is known to have happened
refused-beat          |protocol|event |-DSITES=2 -DEVENT=10                                  |a late beat finds another'\''s lock
no-deadline           |protocol|P1    |-DSITES=2 -DNO_DEADLINE                               |the holder goes on while it cannot reach the database
put-heedless          |protocol|P1    |-DSITES=2 -DPUT_HEEDLESS -DUPDATES                    |an unfenced update ignores locks
beat-unchecked        |protocol|P2    |-DSITES=2 -DBEAT_UNCHECKED                            |a beat does not compare the token
release-unchecked     |protocol|P2    |-DSITES=2 -DRELEASE_UNCHECKED                         |a release does not compare the token
fence-checked-earlier |protocol|P2    |-DSITES=2 -DFENCE_CHECKED_EARLIER -DUPDATES           |the fence is checked in a transaction before the write
put-leaves-lock       |protocol|P2    |-DSITES=2 -DPUT_LEAVES_LOCK -DUPDATES                 |an unfenced update leaves the stale lock it passes
deadline-from-reply   |protocol|P4    |-DSITES=2 -DDEADLINE_FROM_REPLY                       |the lease counts from the reply to a beat
no-margin             |protocol|P4    |-DSITES=2 -DNO_MARGIN                                 |the lease lasts until the lock is stale
reclaim-by-delete     |protocol|P5    |-DSITES=2 -DRECLAIM_BY_DELETE                         |a stale lock is deleted, then taken in a second transaction
reclaim-unchecked     |protocol|P5    |-DSITES=2 -DRECLAIM_UNCHECKED                         |a lock seen stale is taken in a second transaction
acquire-without-nonce |protocol|P7    |-DSITES=2 -DACQUIRE_WITHOUT_NONCE                     |an acquire after a lost reply does not know its own row
failed-beat-is-loss   |protocol|P7    |-DSITES=2 -DFAILED_BEAT_IS_LOSS                       |a beat that failed is taken for a lost lock
update-without-compare|protocol|P7    |-DSITES=2 -DUPDATE_WITHOUT_COMPARE -DUPDATES          |an update is sent again without compare-and-put
update-absence-late   |protocol|P7    |-DSITES=2 -DUPDATE_ABSENCE_LATE -DUPDATES             |no trace of an update is trusted after the lease
release-absence-late  |protocol|P7    |-DSITES=2 -DRELEASE_ABSENCE_LATE                      |a release that finds nothing is trusted after the lease
both-in-trouble       |push    |holds |-DBOTH -DVALUES=2                                     |pushes at two sites in trouble
overlap               |push    |holds |-DSLOTS=3 -DVALUES=2 -DPUNCTUAL                       |two pushes at one site at a time
two-refs              |push    |holds |-DREFS=2 -DVALUES=2 -DPUNCTUAL                        |two refs in one push
replication           |push    |holds |-DREPLICATION                                         |replication step by step
global-first-checked  |push    |holds |-DREPLICATION -DGLOBAL_FIRST                          |replication in the wrong order, but checked by the hook
ends                  |push    |holds |-DCALM -DVALUES=2 -DOPERATOR -DAGAIN -DREJECTED         |after the last trouble all ends by itself
behind                |push    |event |-DEVENT=1                                             |a push is refused because its site is behind
died-after            |push    |event |-DEVENT=2                                             |a push that died after git'\''s move is carried through
died-between          |push    |event |-DEVENT=3 -DREFS=2 -DVALUES=2                         |a push died between two renames
late-prepare          |push    |event |-DEVENT=4                                             |a prepare that was given up on takes effect
late-finish           |push    |event |-DEVENT=5                                             |so does a finish
restarted             |push    |event |-DEVENT=6                                             |a daemon ends an intent that an earlier one recorded
phantom               |push    |event |-DEVENT=7 -DREJECTED                                  |git reports as committed what it rejected
reused                |push    |event |-DEVENT=8 -DAGAIN                                     |a transaction within another uses its intent
unrecorded            |push    |event |-DEVENT=9                                             |a push is acknowledged before the database has it
caught-up             |push    |event |-DEVENT=10                                            |replication moves a ref
overtaken             |push    |event |-DEVENT=11 -DREPLICATION                              |the hook refuses a replication that others overtook
heeded                |push    |event |-DEVENT=12 -DOPERATOR                                 |a decision against git'\''s move is heeded
settled               |push    |event |-DEVENT=13 -DCALM -DVALUES=2                          |all has ended
asked-anew            |push    |event |-DEVENT=14                                            |a prepare without an answer is revoked and made again
under-others          |push    |event |-DEVENT=15                                            |replication moves a ref under the other site'\''s intent
time-reclaim          |push    |S1    |-DTIME_RECLAIM                                        |a lock with an intent is taken over after a time
lines-trusted         |push    |S1    |-DLINES_TRUSTED                                       |the old value is taken from the hook'\''s line
prepare-uncompared    |push    |S1    |-DPREPARE_UNCOMPARED                                  |prepare does not compare the value
prepare-unfenced      |push    |S1    |-DPREPARE_UNFENCED                                    |a late prepare is not fenced by the daemon'\''s presence
asked-again           |push    |S1    |-DASKED_AGAIN                                         |a prepare is made again while the first may still come
no-latch              |push    |S1    |-DNO_LATCH                                            |others go on while a prepare on the ref is under way
committed-unread      |push    |S1    |-DREJECTED -DCOMMITTED_UNREAD                         |committed finishes without reading the repository
reuse-unchecked       |push    |S1    |-DAGAIN -DOPERATOR -DREUSE_UNCHECKED                  |an announced move is let through without a look at its intent
global-first          |push    |S2    |-DREPLICATION -DGLOBAL_FIRST -DREPLICA_UNCHECKED      |replication reads global before local, unchecked by the hook
replica-unchecked     |push    |S2    |-DREPLICATION -DREPLICA_UNCHECKED                     |replication is not checked by the hook
own-ignored           |push    |S3    |-DREPLICATION -DOWN_IGNORED                           |replication moves a ref under an intent of its own site
two-daemons           |push    |S2    |-DTWO_DAEMONS                                         |two daemons have one name
zero-lines            |push    |S4    |-DZERO_LINES                                          |an inner committed 0 0 ends an intent
living-buried         |push    |S4    |-DLIVING_BURIED                                       |reconcile ends intents of running processes
reuse-over            |push    |S4    |-DAGAIN -DREUSE_OVER                                  |an intent whose end is under way is used again
strays-heard          |push    |S4    |-DAGAIN -DSTRAYS_HEARD                                |a hook is heard that git waits for no more
decision-ignored      |push    |S5    |-DOPERATOR -DFORGET_BLINDLY=true                      |a returning site ignores the operator'\''s decision
heed-living           |push    |S5    |-DOPERATOR -DHEED_LIVING                              |a decision is forgotten while its process runs
unburied              |push    |S5    |-DCALM -DVALUES=2 -DUNBURIED                          |nobody ends the intents of processes that ended
queues                |queue   |holds |-DWAITERS=5 -DN=2                                     |two refs, five waiters
queues-with-deaths    |queue   |holds |-DWAITERS=5 -DMORTAL=0 -DPURGE                        |a waiter for one ref may die
queues-with-trouble   |queue   |holds |-DMORTAL=2 -DSLOW=0 -DINTENTS -DN=2                   |one for both may die, one is late for its turns; intents
yield-first           |queue   |holds |-DYIELD_FIRST -DINTENTS                               |a waiter yields to the first of all, not of the later ones
one-is-served         |queue   |holds |-DFOREVER=0                                           |a waiter for one ref gets its lock
both-are-served       |queue   |holds |-DFOREVER=2 -DN=2                                     |a waiter for both gets its locks
served-past-dead      |queue   |holds |-DFOREVER=0 -DMORTAL=3 -DPURGE                        |so does one behind those that died
both-past-dead        |queue   |holds |-DFOREVER=2 -DMORTAL=3 -DPURGE                        |and one for both among them
served-past-slow      |queue   |holds |-DFOREVER=2 -DSLOW=0                                  |and one behind those that are late for their turns
served-past-intent    |queue   |holds |-DFOREVER=0 -DINTENTS                                 |and one beside an intent that others wait for
yield-first-serves    |queue   |holds |-DFOREVER=2 -DYIELD_FIRST                             |and if waiters yield to the first of all
turn                  |queue   |event |-DEVENT=1                                             |a waiter takes what was reserved for it
preferred             |queue   |event |-DEVENT=2                                             |a release prefers a waiter of its own process
limited               |queue   |event |-DEVENT=3                                             |it may not: somebody was passed N times
yielded               |queue   |event |-DEVENT=4                                             |a waiter for both yields to another
left                  |queue   |event |-DEVENT=5                                             |it yields where nobody else waits
kept                  |queue   |event |-DEVENT=6                                             |it keeps its reservation
preempted             |queue   |event |-DEVENT=7                                             |a waiter takes what is reserved for a later one
crossed               |queue   |event |-DEVENT=8                                             |two for both have one each; the earlier takes both
lost-turn             |queue   |event |-DEVENT=9 -DMORTAL=0                                  |a stale reservation is handed on
abandoned             |queue   |event |-DEVENT=10 -DMORTAL=0                                 |a stale reservation without a queue is taken
stepped-back          |queue   |event |-DEVENT=11 -DINTENTS                                  |a waiter yields because of an intent
resumed               |queue   |event |-DEVENT=12 -DINTENTS                                  |it gets its locks after the intent
passed                |queue   |event |-DEVENT=13 -DN=2                                      |a waiter was passed N times, then served
handed                |queue   |event |-DEVENT=14                                            |a waiter that gives up hands its reservation on
acts-on-reservation   |queue   |W1    |-DACTS_ON_RESERVATION                                 |a reservation is taken for a lock
next-unlimited        |queue   |W2    |-DNEXT_UNLIMITED                                      |a release may always prefer its own process
never-keeps           |queue   |W2    |-DNEVER_KEEPS                                         |a waiter for both never keeps a reservation
by-arrival            |queue   |W2    |-DBY_ARRIVAL                                          |each queue is in the order of arrival
barging               |queue   |W2    |-DBARGING                                             |one without a ticket takes what is reserved
stale-for-all         |queue   |W2    |-DSTALE_FOR_ALL -DWAITERS=5 -DMORTAL=0                |a stale reservation is anybody'\''s, though others wait
no-preemption         |queue   |W3    |-DNO_PREEMPTION -DFOREVER=2                           |a later one'\''s reservation stops an earlier waiter
never-stale           |queue   |W3    |-DNEVER_STALE -DFOREVER=0 -DMORTAL=3                  |a reservation never becomes stale
keeps-for-intent      |queue   |W3    |-DKEEPS_FOR_INTENT -DFOREVER=0 -DINTENTS              |a waiter keeps while an intent is in the way
intent-places         |queue   |W3    |-DINTENT_PLACES -DFOREVER=0 -DINTENTS                 |it stays in other queues while an intent is in the way
intent-ping-pong      |queue   |W3    |-DINTENT_PLACES -DINTENTS                             |so two of them yield to each other for ever
yield-uncounted       |queue   |W3    |-DYIELD_UNCOUNTED -DFOREVER=2                         |a yield does not count as being passed
purge-queues          |queue   |W3    |-DPURGE -DPURGE_QUEUES -DFOREVER=2 -DMORTAL=3         |a purge deletes the queue of a stale reservation
withdraw-keeps        |queue   |W4    |-DWITHDRAW_KEEPS                                      |a waiter that gives up does not hand on
stale-place-kept      |queue   |W4    |-DSTALE_PLACE_KEPT -DMORTAL=0                         |whose turn is over keeps its place
rules                 |rules   |holds |                                                     |rules change, again and again, at two sites
rules-changed         |rules   |event |-DEVENT=1                                            |a push is let through by new rules
rules-cut-off         |rules   |event |-DEVENT=2                                            |a site without an answer for too long refuses
rules-started         |rules   |event |-DEVENT=3                                            |a daemon that starts while rules settle refuses
rules-again           |rules   |event |-DEVENT=4                                            |rules change while others settle
rules-unaware         |rules   |event |-DEVENT=5                                            |old rules hold at one site while another refuses
valid-from-answer     |rules   |R1    |-DVALID_FROM_ANSWER                                  |what was told is valid from the answer on
settle-short          |rules   |R1    |-DSETTLE_SHORT                                       |rules settle for less than a hook may take
starts-at-once        |rules   |R1    |-DSTARTS_AT_ONCE                                     |a daemon that starts does not let rules settle
settles-once          |rules   |R1    |-DSETTLES_ONCE                                       |a second change does not settle anew
frozen-git            |rules   |R1    |-DFROZEN_GIT                                         |git stands still between its hook and its move
feed                  |feed    |holds |                                                     |transactions, a change of the offset, a follower, the past
feed-two-statements   |feed    |holds |-DIDS=3 -DWATERMARK_FIRST                             |the watermark is read in a statement before the rows
feed-held-back        |feed    |event |-DIDS=3 -DEVENT=1                                     |a change waits for an earlier transaction without changes
feed-reordered        |feed    |event |-DIDS=3 -DEVENT=2                                     |changes are delivered in another order than committed
feed-divided          |feed    |event |-DIDS=3 -DEVENT=3                                     |one transaction is delivered by two reads
feed-moved            |feed    |event |-DIDS=3 -DEVENT=4                                     |a transaction goes on after the offset was changed
feed-past             |feed    |event |-DIDS=3 -DEVENT=5                                     |the past is what a later change replaced
feed-caught-up        |feed    |event |-DIDS=3 -DEVENT=6                                     |a follower has all, in a later epoch
watermark-newest      |feed    |H1    |-DIDS=3 -DWATERMARK_NEWEST                            |the watermark is the newest position
second-number         |feed    |H1    |-DIDS=3 -DSECOND_NUMBER                               |positions have an origin that others raise
rows-first            |feed    |H1    |-DIDS=3 -DROWS_FIRST                                  |rows are read in a statement before the watermark
by-position           |feed    |H1    |-DIDS=3 -DBY_POSITION                                 |a cursor is a position alone
offset-unlocked       |feed    |H1    |-DIDS=3 -DOFFSET_UNLOCKED                             |the offset is changed beside writers
offset-read-first     |feed    |H1    |-DIDS=3 -DOFFSET_READ_FIRST                           |a writer reads the offset before it locks history
offset-over-own-id    |feed    |H2    |-DIDS=3 -DOFFSET_OVER_OWN_ID                          |a new offset counts from its own transaction
key-after-id          |feed    |H2    |-DIDS=3 -DKEY_AFTER_ID                                |the position is older than the key of the ref
above-watermark       |feed    |H3    |-DIDS=3 -DABOVE_WATERMARK                             |the past is told up to now
past-in-two-statements|feed    |H3    |-DIDS=3 -DAPART                                       |the value is read in a statement after the rows
rewind                |rewind  |holds |                                                     |a database that went back, pushes at two sites, stops, recover
rewind-twice          |rewind  |holds |-DREWINDS=2 -DCHANGES=0                              |twice, also while it is recovered
rewind-again          |rewind  |holds |-DEPOCHS=2                                           |a site halts a server that is admitted; a second recover there
rewind-pushes         |rewind  |holds |-DOPS=3 -DCHANGES=1                                  |three pushes
rewind-three-sites    |rewind  |holds |-DSITES=3 -DCHANGES=0                                |three sites
rewind-follower       |rewind  |holds |-DFOLLOWER -DOPS=3 -DCHANGES=0                       |a follower of the feed beside it
rewind-locks          |rewind  |holds |-DLOCKS -DREWINDS=2 -DCHANGES=0                      |locks and fences beside it
rewind-pruned         |rewind  |holds |-DPRUNING -DREWINDS=2 -DCHANGES=0                    |history is pruned meanwhile
token-of-server       |rewind  |holds |-DLOCKS -DTOKEN_OF_SERVER -DREWINDS=2 -DCHANGES=0    |fences name the server that gave the token
rewind-restart        |rewind  |event |-DEVENT=1                                            |nothing was lost, and another server is admitted
rewind-noticed        |rewind  |event |-DEVENT=2                                            |a site misses what it knows of
rewind-lost-intent    |rewind  |event |-DEVENT=3                                            |it misses an intent alone
rewind-reapplied      |rewind  |event |-DEVENT=4                                            |recover writes a lost change again
rewind-opposed        |rewind  |event |-DEVENT=5                                            |recover lists one that others are in the way of
rewind-returned       |rewind  |event |-DEVENT=6                                            |a site that recover went without lists what it knows
rewind-halt-again     |rewind  |event |-DEVENT=7 -DREWINDS=2                                |a decision that was lost, too, is asked for again
rewind-revived        |rewind  |event |-DEVENT=8                                            |an intent that had ended stands again
rewind-went-on        |rewind  |event |-DEVENT=9                                            |a push is finished after recover
rewind-unaware        |rewind  |event |-DEVENT=10                                           |nobody who can be heard knows of a lost push
rewind-stale-pass     |rewind  |event |-DEVENT=11 -DLOCKS                                   |before recover, a stale token passes a fence
rewind-told           |rewind  |event |-DEVENT=12 -DFOLLOWER                                |a follower is told
rewind-half-done      |rewind  |event |-DEVENT=13 -DREWINDS=2                               |a recover that has begun is lost
rewind-taken-along    |rewind  |event |-DEVENT=14                                           |a site is waited for though its row says that it stopped
no-server             |rewind  |V1    |-DNO_SERVER                                          |writes do not compare the server
server-earlier        |rewind  |V1    |-DSERVER_EARLIER                                     |the server is compared in a round trip before
report-unnamed        |rewind  |V1    |-DREPORT_UNNAMED                                     |a report does not name the server of its look
admits-early          |rewind  |V1    |-DADMITS_EARLY                                       |a server is admitted before all sites have reported
stays-admitted        |rewind  |V1    |-DSTAYS_ADMITTED                                     |it stays so when somebody is found that was live
live-ignored          |rewind  |V1    |-DLIVE_IGNORED                                       |away is believed, though another site knew better
live-names            |rewind  |V1    |-DLIVE_NAMES -DCHANGES=3                             |reports name who was live, not since when
intent-unknown        |rewind  |V1    |-DINTENT_UNKNOWN                                     |an intent is not known to its site
moved-only            |rewind  |V1    |-DMOVED_ONLY                                         |a lost intent counts only when git has moved the ref
intent-forgotten      |rewind  |V1    |-DINTENT_FORGOTTEN                                   |a daemon that starts forgets its intents
cursor-without-op     |rewind  |V2    |-DCURSOR_WITHOUT_OP -DFOLLOWER                       |a cursor does not name the operation
now-without-op        |rewind  |V2    |-DNOW_WITHOUT_OP -DFOLLOWER                          |nor does one that starts at the present
without-silently      |rewind  |V3    |-DWITHOUT_SILENTLY                                   |recover does not wait for sites
settle-first          |rewind  |V3    |-DSETTLE_FIRST                                       |intents are settled before the comparison
by-repository-alone   |rewind  |V3    |-DBY_REPOSITORY_ALONE                                |a known row is taken for there if its intent stands again
unmoved-dropped       |rewind  |V3    |-DUNMOVED_DROPPED                                    |recover drops an intent that git had not moved
own-only              |rewind  |V3    |-DOWN_ONLY                                           |a site knows only what it wrote itself
sync-unchecked        |rewind  |V3    |-DSYNC_UNCHECKED                                     |replication does not compare the server
sync-checked-before   |rewind  |V3    |-DSYNC_CHECKED_BEFORE                                |it does so only before it reads
recover-goes-on       |rewind  |V3    |-DRECOVER_GOES_ON                                    |recover goes on at another server
lift-later            |rewind  |V3    |-DLIFT_LATER                                         |recover checks in one transaction and ends in the next
keeps-locks           |rewind  |V4    |-DKEEPS_LOCKS -DLOCKS                                |recover keeps locks
tokens-again          |rewind  |V4    |-DTOKENS_AGAIN -DLOCKS                               |tokens go on from where the database went back to
report-ends-halt      |rewind  |V5    |-DREPORT_ENDS_HALT                                   |a report admits when the last lost change is decided
changes-counted       |rewind  |V5    |-DCHANGES_COUNTED                                    |the changes of a site are counted, not timed
late-serves           |rewind  |V6    |-DLATE_SERVES                                        |a site'\''s own row need not name the server
pruned-is-there       |rewind  |V6    |-DPRUNED_IS_THERE -DPRUNING                          |what was pruned is taken for there
pruned-is-lost        |rewind  |V7    |-DPRUNED_IS_LOST -DPRUNING                           |what was pruned is taken for lost
prunes-freely         |rewind  |V7    |-DPRUNES_FREELY -DPRUNING                            |rows are pruned that a site has not seen
decided-unknown       |rewind  |V7    |-DDECIDED_UNKNOWN                                    |a lost change that is decided does not count as found
report-believed       |rewind  |V7    |-DREPORT_BELIEVED                                    |a report does not look again
leases                |lease   |holds |                                                     |leases: two exclusive, one shared; freezes at every step
leases-shared         |lease   |holds |-DEXCLUSIVE=1                                        |one exclusive, two shared
lease-together        |lease   |event |-DEVENT=1 -DEXCLUSIVE=1                              |two hold a lease together
lease-waited          |lease   |event |-DEVENT=2                                            |one that waited gets it
lease-removed         |lease   |event |-DEVENT=3                                            |one that looks removes a stale row
lease-again           |lease   |event |-DEVENT=4                                            |one that lost its row begins again
lease-turned          |lease   |event |-DEVENT=5                                            |a stale turn is taken over
lease-in-order        |lease   |event |-DEVENT=6                                            |a reader waits for a writer that waits
row-after-turn        |lease   |A1    |-DROW_AFTER_TURN                                     |the row comes after the turn is released
looks-first           |lease   |A1    |-DLOOKS_FIRST                                        |the listing comes before the row
own-unseen            |lease   |A1    |-DOWN_UNSEEN                                         |a waiter does not look at its own row
own-unseen-lost       |lease   |A3    |-DOWN_UNSEEN                                         |and gets a lease that is lost already
any-ticket            |lease   |A2    |-DANY_TICKET                                         |a waiter waits for later ones, too
packs                 |packs   |holds |-DLAST=3 -DPUSHERS=3 -DSLOW=3 -DCALM                 |two sites push and follow; preparations are open for long
packs-three-sites     |packs   |holds |-DLAST=3 -DSITES=3 -DPUSHERS=3 -DDIVIDED -DCALM      |a third one follows
packs-crashes         |packs   |holds |-DLAST=3 -DMORTAL=1 -DABANDONS -DCAREFUL=1 -DCALM    |a site that pushes dies at any step; packs are abandoned
packs-crashes-behind  |packs   |holds |-DLAST=3 -DMORTAL=2 -DCAREFUL=2 -DFOREIGN=1 -DCALM   |so does one that follows, beside a foreign transaction
packs-carried         |packs   |holds |-DLAST=3 -DPUSHERS=3 -DSLOW=3 -DCALM -DCARRIED       |preparations carry their packs, and are open for long
packs-carried-crashes |packs   |holds |-DLAST=3 -DMORTAL=1 -DCAREFUL=1 -DCALM -DCARRIED     |a site whose preparations do dies at any step
packs-carried-pruned  |packs   |holds |-DLAST=3 -DPRUNES -DMAINTAINERS=2 -DDAYS=1 -DCALM -DPUSHERS=3 -DDIVIDED -DCARRIED|two sites push so, and one prunes
packs-carried-based   |packs   |holds |-DLAST=3 -DBASES=1 -DMAINTAINERS=2 -DDAYS=1 -DPUSHERS=3 -DDIVIDED -DCARRIED|or makes a base
packs-carried-by-hand |packs   |holds |-DLAST=3 -DCARRIED -DBY_HAND=0 -DPROMISE=2           |C2 even if a site has what the database never had
packs-pruned          |packs   |holds |-DLAST=3 -DPRUNES -DMAINTAINERS=2 -DDAYS=1 -DCALM -DDELETES|a site that follows prunes
packs-pruned-dead     |packs   |holds |-DLAST=3 -DPRUNES -DMAINTAINERS=2 -DDAYS=1 -DCALM -DMORTAL=2 -DCAREFUL=2|and dies at any step
packs-pruned-pusher   |packs   |holds |-DLAST=3 -DPRUNES -DMAINTAINERS=1 -DDAYS=1 -DMORTAL=1 -DCAREFUL=1|so does a site that pushes
packs-pruned-both     |packs   |holds |-DLAST=4 -DPRUNES -DMAINTAINERS=2 -DDAYS=1 -DCALM -DPUSHERS=3 -DDIVIDED|two sites push, and one prunes
packs-pruned-behind   |packs   |holds |-DLAST=4 -DPRUNES -DMAINTAINERS=2 -DDAYS=1 -DCALM -DPUSHERS=3 -DDIVIDED -DLAGGING|it need not have all packs
packs-based           |packs   |holds |-DLAST=3 -DBASES=1 -DMAINTAINERS=2 -DDAYS=1 -DCALM -DDISK=1 -DDIVIDED|a base; a disk is lost
packs-based-both      |packs   |holds |-DLAST=3 -DBASES=1 -DMAINTAINERS=2 -DDAYS=1 -DPUSHERS=3 -DDIVIDED|two sites push, and one makes a base
packs-transit         |packs   |holds |-DLAST=3 -DTRANSIT=1 -DBASES=1 -DMAINTAINERS=2 -DDAYS=1 -DCALM|packs are dropped in transit, once the other site has them
packs-transit-both    |packs   |holds |-DLAST=3 -DTRANSIT=1 -DBASES=2 -DMAINTAINERS=3 -DDAYS=1 -DPUSHERS=3 -DDIVIDED -DCALM|two sites push, and both drop
packs-transit-away    |packs   |holds |-DLAST=3 -DTRANSIT=1 -DBASES=1 -DMAINTAINERS=1 -DSITES=3 -DDIVIDED -DPROMISE=1|C1 even for a third site that was away for longer
packs-transit-kept    |packs   |holds |-DLAST=3 -DTRANSIT=1 -DBASES=1 -DMAINTAINERS=1 -DSITES=3 -DDIVIDED -DPROMISE=2|and C2
packs-faulty          |packs   |holds |-DLAST=3 -DNEGATES_LOCAL -DLOCAL -DPROMISE=1         |C1 even if a site makes packs that build on its own refs
packs-lacking         |packs   |holds |-DLAST=3 -DLACKS -DPROMISE=1                         |C1 even if it makes packs that lack objects
packs-beside-dead     |packs   |holds |-DLAST=3 -DMORTAL=1 -DSTAYS_DOWN=1 -DCALM            |another site comes to rest beside one that died with its intents
packs-beside-foreign  |packs   |holds |-DLAST=3 -DFOREIGN=2 -DCALM                          |and beside a foreign transaction that never ends
pack-followed         |packs   |event |-DEVENT=1 -DLAST=3                                   |a site follows a move, after it has unpacked its objects
pack-under-others     |packs   |event |-DEVENT=2 -DLAST=3                                   |it does so while another site'\''s intent stands on the ref
pack-overtaken        |packs   |event |-DEVENT=3 -DLAST=3 -DCAREFUL=3                       |the hook refuses a move that others overtook
pack-came-late        |packs   |event |-DEVENT=4 -DSITES=3 -DPUSHERS=3 -DSLOW=3 -DLAST=3 -DDIVIDED|a pack is unpacked after one of a larger position
pack-dropped          |packs   |event |-DEVENT=5 -DABANDONS -DLAST=3                        |a preparation finds that its pack was dropped
pack-builds-on-old    |packs   |event |-DEVENT=6 -DPUSHERS=3                                |a used pack builds on a value that no ref has any more
pack-needless         |packs   |event |-DEVENT=7 -DLAST=3                                   |a push brings nothing that the database lacks
pack-pruned           |packs   |event |-DEVENT=8 -DPRUNES -DMAINTAINERS=2 -DDAYS=1 -DLAST=3 |maintenance deletes objects
pack-kept             |packs   |event |-DEVENT=9 -DPRUNES -DMAINTAINERS=2 -DLAST=3          |it keeps objects that no ref reaches
pack-prune-killed     |packs   |event |-DEVENT=10 -DPRUNES -DMAINTAINERS=2 -DDAYS=1 -DLAST=3|it is killed before it has deleted all
pack-superseded       |packs   |event |-DEVENT=11 -DBASES=1 -DMAINTAINERS=2 -DLAST=3        |packs are dropped after a base
pack-from-base        |packs   |event |-DEVENT=12 -DBASES=1 -DMAINTAINERS=2 -DLAST=3        |a site unpacks a base
pack-cloned           |packs   |event |-DEVENT=13 -DDISK=1 -DLAST=3                         |a site that lost its disk has all again
pack-refused          |packs   |event |-DEVENT=14 -DLOCAL -DNEGATES_LOCAL -DLAST=3          |a follower refuses a pack of a faulty site
pack-orphaned         |packs   |event |-DEVENT=15 -DMORTAL=1 -DSLOW=1 -DLAST=3              |a preparation takes effect after its process died
packs-rested          |packs   |event |-DEVENT=16 -DCALM -DLAST=3                           |all has ended
pack-trimmed          |packs   |event |-DEVENT=17 -DLAST=3 -DTRANSIT=1 -DBASES=1 -DMAINTAINERS=2|what was in transit is dropped
pack-away             |packs   |event |-DEVENT=18 -DLAST=3 -DTRANSIT=1 -DBASES=1 -DMAINTAINERS=1 -DSITES=3 -DPROMISE=1|a site was away for longer, and needs a base
pack-base-moved       |packs   |event |-DEVENT=19 -DLAST=3 -DPUSHERS=3 -DCARRIED            |a carried pack builds on what the database does not hold
trims-alone           |packs   |C2    |-DLAST=3 -DTRANSIT=0 -DBASES=1 -DMAINTAINERS=1      |what is in transit is dropped although no other site has it
trims-unpassed        |packs   |C4    |-DLAST=3 -DTRANSIT=1 -DBASES=1 -DMAINTAINERS=1 -DSITES=3 -DCALM|a site lacks what was dropped before it came
bases-unchecked       |packs   |C1    |-DLAST=3 -DNEGATES_LOCAL -DLOCAL -DBASES_UNCHECKED -DTIPS_UNCHECKED|a pack of a faulty site is unpacked onto nothing
tips-unchecked        |packs   |C1    |-DLAST=3 -DLACKS -DTIPS_UNCHECKED                    |a pack counts though it lacks what its tips reach
prunes-in-pushes      |packs   |C1    |-DLAST=3 -DDURING_PUSHES -DPRUNES -DMAINTAINERS=1 -DCAREFUL=1|maintenance prunes between a pack and its push
prune-outlives        |packs   |C1    |-DLAST=3 -DPRUNE_OUTLIVES -DPRUNES -DMAINTAINERS=1 -DMORTAL=1 -DCAREFUL=1|only a daemon that has died knew that pruning goes on
packs-first           |packs   |C1    |-DLAST=3 -DPACKS_FIRST -DPRUNES -DMAINTAINERS=2 -DDAYS=1 -DDELETES|a follower lists packs first, and reads the values then
local-negatives       |packs   |C2    |-DLAST=3 -DNEGATES_LOCAL -DLOCAL                     |a pack builds on refs that only this site has
pack-unchecked        |packs   |C2    |-DLAST=3 -DPACK_UNCHECKED -DABANDONS                 |a preparation does not look for its pack
olds-uncompared       |packs   |C2    |-DLAST=3 -DOLD_UNCOMPARED -DBY_HAND                  |it compares other values than those that the pack builds on
bases-uncompared      |packs   |C2    |-DLAST=3 -DCARRIED -DBASES_UNCOMPARED -DBY_HAND=0     |a preparation that carries its pack compares no other values
hour-ignored          |packs   |C2    |-DLAST=3 -DHOUR_IGNORED -DBASES=1 -DMAINTAINERS=2 -DDAYS=1 -DPUSHERS=3 -DDIVIDED|a push without a pack trusts a look of long ago
base-behind           |packs   |C2    |-DLAST=3 -DBASE_LAGS -DBASES=1 -DMAINTAINERS=2       |a base is made by a site that lacks packs
base-of-refs          |packs   |C2    |-DLAST=3 -DBASE_OF_LOCAL_REFS -DBASES=1 -DMAINTAINERS=2 -DDAYS=1|it is made of the site'\''s own refs, which lag
base-unkept           |packs   |C2    |-DBASE_UNKEPT -DBASES=1 -DMAINTAINERS=2              |it has the present values only
base-without-unused   |packs   |C2    |-DUNUSED_UNKEPT -DBASES=1 -DMAINTAINERS=2 -DDAYS=1 -DPUSHERS=3 -DDIVIDED|it heeds no packs that were not used yet
drops-early           |packs   |C2    |-DLAST=3 -DDROPS_EARLY -DBASES=1 -DMAINTAINERS=2     |packs are dropped before the base is complete
pack-own-ignored      |packs   |C3    |-DLAST=3 -DOWN_IGNORED -DPUSHERS=3 -DCAREFUL=2       |a follower heeds no intent of its own site
pack-uncompared       |packs   |C3    |-DLAST=3 -DLOCAL_UNCOMPARED -DPUSHERS=3 -DCAREFUL=2|nor what the ref holds under its lock
resumes-at-last       |packs   |C4    |-DLAST=3 -DRESUMES_AT_LAST -DSLOW=1 -DPUSHERS=3 -DCALM|a follower resumes after the last pack that it saw
upto-of-last-page     |packs   |C4    |-DUPTO_OF_LAST -DSLOW=3 -DPUSHERS=3 -DSITES=3 -DCALM -DDIVIDED|or after what was complete at the last page
lists-complete        |packs   |C4    |-DLAST=3 -DLISTS_COMPLETE -DFOREIGN=2 -DCALM         |it lists complete positions only
mark-first            |packs   |C4    |-DLAST=3 -DMARK_FIRST -DMORTAL=2 -DCALM              |the mark is written before the pack is unpacked
own-skipped           |packs   |C4    |-DLAST=3 -DOWN_SKIPPED -DDISK=0 -DCALM               |a process skips its packs in a repository that was made again
held-by-others        |packs   |C4    |-DLAST=3 -DHELD_BY_OTHERS -DMORTAL=1 -DSTAYS_DOWN=1 -DCALM|intents of other sites hold a follower back
grace-only            |packs   |C4    |-DLAST=3 -DGRACE_ONLY -DPRUNES -DMAINTAINERS=2 -DCALM|pruning keeps what refs reach, and nothing else
prunes-behind         |packs   |C4    |-DLAGGING -DMARK_UNKEPT -DPRUNES -DMAINTAINERS=2 -DCALM -DDAYS=1|it does not look whether all packs are here
prunes-above-mark     |packs   |C4    |-DLAST=3 -DMARK_UNKEPT -DPRUNES -DMAINTAINERS=2 -DCALM -DDAYS=1 -DMORTAL=2|it keeps nothing for packs that are listed again
values-unkept         |packs   |C4    |-DLAST=3 -DVALUES_UNKEPT -DPRUNES -DMAINTAINERS=2 -DCALM -DDAYS=1|it does not keep the present values that refs are to get
unused-unkept         |packs   |C4    |-DUNUSED_UNKEPT -DPRUNES -DMAINTAINERS=2 -DCALM -DDAYS=1 -DPUSHERS=3 -DDIVIDED|nor what packs that were not used yet build on
follows-meanwhile     |packs   |C4    |-DFOLLOWS_MEANWHILE -DPRUNES -DMAINTAINERS=2 -DCALM -DDAYS=1|the site follows meanwhile
base-aged             |packs   |C4    |-DLAST=3 -DBASE_AGED -DBASES=1 -DMAINTAINERS=2 -DFOREIGN=1 -DDAYS=1 -DDISK=1 -DCALM|a base lacks what later packs build on that are old
before-base           |packs   |C4    |-DLAST=3 -DBEFORE_BASE -DBASES=1 -DMAINTAINERS=2 -DDISK=1 -DCALM|packs before a base are listed until they are dropped
sessions              |sessions|holds |-DCALM                                               |a Gerrit'\''s sessions, beside git, the follower and another site
sessions-three        |sessions|holds |-DCALM -DVALUES=2 -DSLOTS=3                          |three transactions
sessions-two-guards   |sessions|holds |-DCALM -DVALUES=2 -DGUARDS=2                         |two Gerrits of one site
sessions-operator     |sessions|holds |-DOPERATOR                                           |an operator decides about intents, also of a Gerrit that lives
sessions-operator-ends|sessions|holds |-DCALM -DVALUES=2 -DOPERATOR                         |and all ends by itself
sessions-gone         |sessions|holds |-DCALM -DVALUES=2 -DGONE                             |so it does beside a Gerrit that died and stays down
sessions-batches      |sessions|holds |-DCALM -DVALUES=2 -DREFS=2 -DBATCHES                 |two refs in each transaction; deaths between two renames
sessions-packed       |sessions|holds |-DCALM -DVALUES=2 -DREFS=2 -DPACKED                  |two refs in one packed-refs
sessions-packed-guards|sessions|holds |-DCALM -DVALUES=2 -DREFS=2 -DPACKED -DGUARDS=2       |with two Gerrits
sessions-indexes      |sessions|holds |-DCALM -DVALUES=2 -DINDEXES -DOPERATOR               |the list of moves, and Gerrit'\''s indexes
sessions-unpinned     |sessions|holds |-DUNPINNED                                           |JGit does not compare what it overwrites
sessions-unwaited     |sessions|holds |-DCALM -DVALUES=2 -DOPERATOR -DUNWAITED              |a thread does not wait for the answer to its report
sessions-long-claims  |sessions|holds |-DCALM -DVALUES=2 -DOPERATOR -DCLAIMED_UNTIL_SETTLED |a claim lasts until the transaction is settled
session-reported      |sessions|event |-DVALUES=2 -DEVENT=1                                 |a move is settled by its report
session-dead-moved    |sessions|event |-DVALUES=2 -DEVENT=2                                 |a move of a Gerrit that died is carried through
session-dead-unmoved  |sessions|event |-DVALUES=2 -DEVENT=3                                 |an OK of one that died is taken back
session-kept          |sessions|event |-DVALUES=2 -DEVENT=4                                 |a daemon that was restarted keeps what had its OK
session-ended-apart   |sessions|event |-DVALUES=2 -DEVENT=5                                 |a move that ended without a session is settled by the next list
session-late-ok       |sessions|event |-DVALUES=2 -DEVENT=6                                 |a late OK is answered
session-broken-ok     |sessions|event |-DVALUES=2 -DEVENT=7                                 |an OK of a session that has broken is taken
session-work-ended    |sessions|event |-DVALUES=2 -DEVENT=8                                 |a new session ends the work for an earlier one
session-hook-refused  |sessions|event |-DVALUES=2 -DEVENT=9                                 |a hook is refused because of a session'\''s claim
session-stale-old     |sessions|event |-DVALUES=2 -DEVENT=10                                |a transaction is refused: the ref has moved since its caller read it
session-waited        |sessions|event |-DVALUES=2 -DEVENT=11                                |a transaction waits for the follower
session-threw         |sessions|event |-DVALUES=2 -DEVENT=12                                |Gerrit throws after the move
session-told-alone    |sessions|event |-DVALUES=2 -DEVENT=13                                |a caller is told of a move without the daemon'\''s answer
session-lock-removed  |sessions|event |-DVALUES=2 -DEVENT=14                                |the lock file of a Gerrit that died is removed
session-orphan-moved  |sessions|event |-DVALUES=2 -DEVENT=15                                |a follower'\''s git moves a ref after its daemon has died
session-rested        |sessions|event |-DVALUES=2 -DEVENT=16 -DCALM                         |all has ended
session-heeded        |sessions|event |-DVALUES=2 -DEVENT=17 -DOPERATOR                     |a decision against a move is heeded
session-succeeded     |sessions|event |-DVALUES=2 -DEVENT=18                                |a Gerrit begins while what the one before it left still stands
session-indexed       |sessions|event |-DVALUES=2 -DEVENT=19 -DINDEXES                      |the list of moves brings an index up to date
session-partly        |sessions|event |-DVALUES=2 -DEVENT=20 -DREFS=2 -DBATCHES             |a Gerrit died between two renames
session-late-intent   |sessions|event |-DVALUES=2 -DEVENT=21                                |an intent is recorded after a crash of the daemon that asked for it
broken-is-dead        |sessions|J1    |-DVALUES=2 -DBROKEN_IS_DEAD                          |a broken session is taken for a death
silent-is-dead        |sessions|J1    |-DVALUES=2 -DSILENT_IS_DEAD                          |a guard that is silent is taken for dead
pid-alone             |sessions|J1    |-DVALUES=2 -DGUARDS=2 -DPID_ALONE                    |two guards in two PID namespaces are taken for one
id-again              |sessions|J1    |-DSENT_AGAIN                                         |a retry has the ID of what was given up
list-waits            |sessions|J1    |-DVALUES=2 -DLIST_WAITS                              |a session begins while a thread waits in an earlier one
listed-before-jgit    |sessions|J1    |-DVALUES=2 -DLISTED_BEFORE_JGIT                      |the list lacks what JGit works on
announced-early       |sessions|J1    |-DVALUES=2 -DANNOUNCED_EARLY                         |an announcement is heard before the list
sessions-unnumbered   |sessions|J1    |-DVALUES=2 -DUNNUMBERED                              |the list of an earlier session is heard after a later one'\''s
ok-settled            |sessions|J1    |-DVALUES=2 -DOK_SETTLED                              |a list settles what has its OK, too
follower-unclaimed    |sessions|J1    |-DVALUES=2 -DFOLLOWER_UNCLAIMED                      |a follower'\''s claim ends with its hook'\''s check
orphan-ignored        |sessions|J1    |-DVALUES=2 -DORPHAN_IGNORED                          |or with its daemon
follower-heedless     |sessions|J1    |-DVALUES=2 -DFOLLOWER_HEEDLESS                       |a follower heeds intents and no claims
database-uncompared   |sessions|J1    |-DVALUES=2 -DDATABASE_UNCOMPARED                     |the database'\''s value is not compared
heeded-living         |sessions|J1    |-DVALUES=2 -DOPERATOR -DHEED_LIVING                  |a decision is heeded while its transaction may still move
decision-unclaimed    |sessions|J1    |-DVALUES=2 -DOPERATOR -DDECISION_UNCLAIMED           |a decision is no claim
dead-unseen           |sessions|J2    |-DVALUES=2 -DCALM -DDEAD_UNSEEN                      |nobody sees that a guard is dead
same-identity         |sessions|J2    |-DVALUES=2 -DCALM -DSAME_IDENTITY                    |a guard is taken for the one before it
late-ok-unanswered    |sessions|J2    |-DVALUES=2 -DCALM -DLATE_OK_UNANSWERED               |a late OK is dropped in silence
work-goes-on          |sessions|J2    |-DVALUES=2 -DCALM -DEARLIER_WORK                     |work for an earlier session goes on beside a new one
work-unrevoked        |sessions|J2    |-DVALUES=2 -DCALM -DUNREVOKED                        |it ends without a word about what is being prepared
unlisted-kept         |sessions|J2    |-DVALUES=2 -DCALM -DUNLISTED_KEPT                    |what is on no list is kept
ended-unreported      |sessions|J2    |-DVALUES=2 -DCALM -DENDED_UNREPORTED                 |what ends between a list and its answer is not reported
session-silent        |sessions|J2    |-DVALUES=2 -DCALM -DSILENT                           |a guard that lives and is silent keeps what has its OK
hook-waits            |sessions|J2    |-DVALUES=2 -DCALM -DHOOK_WAITS                       |a hook waits for a session
claims-one-by-one     |sessions|J2    |-DVALUES=2 -DCALM -DREFS=2 -DBATCHES -DONE_BY_ONE    |a transaction claims one ref after the other
waits-claimed         |sessions|J2    |-DVALUES=2 -DCALM -DWAITS_CLAIMED                    |it waits for the follower with its claim
revoked-unheeded      |sessions|J2    |-DVALUES=2 -DCALM -DOPERATOR -DREVOKED_UNHEEDED      |a decision about what was revoked is not heeded
throws-silently       |sessions|J2    |-DVALUES=2 -DCALM -DTHROWS_SILENTLY                  |what was thrown is not reported
lock-file-left        |sessions|J2    |-DVALUES=2 -DCALM -DLOCK_LEFT                        |a lock file of a dead guard stays
ok-before-removal     |sessions|J2    |-DVALUES=2 -DREFS=2 -DPACKED -DOK_BEFORE_REMOVAL     |a transaction has its OK while such a lock file is in its way
old-of-disk           |sessions|J3    |-DOLD_OF_DISK -DUNPINNED                             |the old value is the repository'\''s, whatever was announced
lock-of-living        |sessions|J3    |-DVALUES=2 -DREFS=2 -DPACKED -DLOCK_OF_LIVING        |lock files go while a living guard has its OK there
lock-of-git           |sessions|J3    |-DVALUES=2 -DREFS=2 -DPACKED -DLOCK_OF_GIT           |or while a git runs there
lock-looks-first      |sessions|J3    |-DVALUES=2 -DREFS=2 -DPACKED -DLOOKS_FIRST           |lock files go a step after the look, two at a time
repairs-living        |sessions|J3    |-DVALUES=2 -DREFS=2 -DPACKED -DREPAIRS_LIVING        |site check --repair looks for processes of git only
late-ok-taken         |sessions|J4    |-DVALUES=2 -DLATE_OK_TAKEN                           |an OK is taken after the thread has given up
ended-unlisted        |sessions|J4    |-DVALUES=2 -DENDED_UNLISTED                          |what has ended and is yet to be reported is on no list
jgit-believed         |sessions|J4    |-DVALUES=2 -DJGIT_BELIEVED                           |without an answer JGit'\''s result stands
claimed-at-prepare    |sessions|J5    |-DVALUES=2 -DCLAIMED_AT_PREPARE                      |the repository is read before the claim
hook-unclaimed        |sessions|J5    |-DHOOK_UNCLAIMED                                     |a hook heeds intents and no claims
disk-uncompared       |sessions|J5    |-DDISK_UNCOMPARED                                    |the repository'\''s value is not compared
old-of-disk-pinned    |sessions|J5    |-DOLD_OF_DISK                                        |the old value is the repository'\''s, though JGit compares
given-out-early       |sessions|J6    |-DVALUES=2 -DCALM -DINDEXES -DGIVEN_EARLY            |the list shows a move that is yet to be made
settled-unlisted      |sessions|J6    |-DVALUES=2 -DCALM -DINDEXES -DSETTLED_UNLISTED       |what is settled is not on the list
reported-unlisted     |sessions|J6    |-DVALUES=2 -DCALM -DINDEXES -DREPORTED_UNLISTED      |nor what was reported: Gerrit dies before it indexes
noted-after           |sessions|J6    |-DVALUES=2 -DCALM -DINDEXES -DNOTED_AFTER            |it is on the list after the database was told
follower-noted-after  |sessions|J6    |-DVALUES=2 -DCALM -DINDEXES -DFOLLOWER_NOTED_AFTER   |a follower'\''s move is on the list once it is made
place-saved-first     |sessions|J6    |-DVALUES=2 -DCALM -DINDEXES -DSAVED_FIRST            |the place is saved before the index is written
'

install_tools() {
	local missing=()
	command -v spin >/dev/null || missing+=(spin)
	command -v "${CC:-gcc}" >/dev/null || missing+=(gcc libc6-dev)
	if [[ ${#missing[@]} -eq 0 ]]; then return; fi
	if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
		echo "model: missing: ${missing[*]}. Install them (Debian, Ubuntu: apt-get install ${missing[*]}; macOS: brew install spin)" >&2
		exit 1
	fi
	echo "model: installing ${missing[*]}"
	apt-get update --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends "${missing[@]}"
}

# field N LINE prints the Nth column of a line of variants.
field() {
	cut -d'|' -f"$1" <<<"$2" | sed 's/^ *//; s/ *$//'
}

# search LINE checks one variant in a directory of its own, whose out is Spin's
# report. Breadth first: no depth to run out of, and shortest counterexamples. But
# endless runs, in which every process that can go on does, are searched depth first.
search() {
	local name wanted flags promise=()
	name=$(field 1 "$1") wanted=$(field 3 "$1")
	read -ra flags <<<"$(field 4 "$1")"
	case $wanted in
	[PSWRHVACJ]*) promise=("-DPROMISE=${wanted#?}") ;;
	event) promise=(-DPROMISE=99) ;; # none: only the event
	esac
	local optimise=0 hash_bits=20
	if [[ $wanted == holds ]]; then optimise=2 hash_bits=23; fi
	mkdir "$work/$name"
	cd "$work/$name"
	cp "$model"/*.pml .
	spin -a "${flags[@]}" "${promise[@]+"${promise[@]}"}" "$(field 2 "$1").pml" >spin.out
	local kind=(-DSAFETY -DBFS) how=()
	if [[ ${flags[*]} == *-DFOREVER=* ]]; then kind=(-DNFAIR=3) how=(-a -f -m2000000); fi
	"${CC:-gcc}" "-O$optimise" -w "${kind[@]}" -DNOREDUCE -DVECTORSZ=512 "-DMEMLIM=$megabytes" -o pan pan.c
	./pan "-w$hash_bits" "${how[@]+"${how[@]}"}" >out 2>&1 || true
	printf '%s\n' "${flags[@]}" "${promise[@]+"${promise[@]}"}" >flags
}

# verdict WANTED reads Spin's report of the variant in this directory.
verdict() {
	local violated='assertion violated  *\( *' expected
	case $1 in
	holds)
		if grep -q 'errors: 0' out && ! grep -Eq 'not completed|truncated|too small' out; then
			echo holds
		else
			echo 'BROKEN OR INCOMPLETE'
		fi
		return
		;;
	event) violated+='([0-9]+)!=\1\)' expected=happens ;;
	[PSWRHVACJ]*) violated+="!\(\(\(${1#?}==0\)\|\|\(${1#?}==${1#?}\)\)\)" expected=caught ;;
	esac
	if [[ $1 == W3 ]]; then violated+='|acceptance cycle'; fi # it waits for ever
	if grep -Eq "$violated" out; then echo "$expected"; else echo "NOT ${expected^^}"; fi
}

# report LINE prints the line of the table for a variant that was searched.
report() {
	local name wanted result states depth seconds
	name=$(field 1 "$1") wanted=$(field 3 "$1")
	cd "$work/$name"
	result=$(verdict "$wanted")
	states=$(awk '/states, stored/ { print $1; exit }' out)
	depth=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' out)
	seconds=$(sed -n 's/.*elapsed time \([0-9.]*\) seconds.*/\1/p' out)
	printf '%-22s %-6s %9s %5s %8s  %-8s %s\n' "$name" "$wanted" "${states:-?}" "${depth:-?}" "${seconds:-0}" "$result" "$(field 5 "$1")"
	case $result in
	holds | happens | caught) ;;
	*) tail -n 20 out >&2 && return 1 ;;
	esac
}

# check searches all variants that must hold, the large ones, beside all others.
check() {
	local large small line failed=0
	mapfile -t large < <(sed '/^$/d' <<<"$variants" | grep -E '^[^|]*\|[^|]*\|holds')
	mapfile -t small < <(sed '/^$/d' <<<"$variants" | grep -Ev '^[^|]*\|[^|]*\|holds')
	printf '%-22s %-6s %9s %5s %8s  %-8s %s\n' variant wanted states depth seconds result 'what it is'
	(for line in "${large[@]}"; do (search "$line"); done) &
	for line in "${small[@]}"; do
		(search "$line")
		(report "$line") || failed=1
	done
	wait "$!"
	for line in "${large[@]}"; do
		(report "$line") || failed=1
	done
	return "$failed"
}

trail() {
	local line flags file
	line=$(grep -E "^$1 *\|" <<<"$variants") || { echo "model: no variant $1; there are:" $(cut -d'|' -f1 <<<"$variants") >&2 && return 1; }
	(search "$line")
	cd "$work/$1"
	file=$(field 2 "$line").pml
	if [[ ! -e $file.trail ]]; then
		echo "model: $1 has no counterexample" && return
	fi
	mapfile -t flags <flags
	spin -t -T "${flags[@]}" "$file" | awk '
		/^spin: .*assertion/ { print "=> " $0; exit }
		/^#processes/ { exit }
		/^--- tick/ { print "--- tick " ++ticks " ---"; next }
		NF { print }'
	grep -Em1 'assertion violated|acceptance cycle' out
}

install_tools
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
case ${1-} in
'') check ;;
--trail) trail "${2:?usage: docs/model/run.sh --trail VARIANT}" ;;
*) echo "usage: docs/model/run.sh [--trail VARIANT]" >&2 && exit 2 ;;
esac
