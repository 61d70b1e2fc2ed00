package com.github.globalrefdb.gerrit.moves;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.google.common.flogger.FluentLogger;
import com.google.gerrit.extensions.events.LifecycleListener;
import com.google.gerrit.server.config.ConfigUtil;
import com.google.gerrit.server.config.GerritServerConfig;
import com.google.gerrit.server.config.SitePaths;
import com.google.gerrit.server.util.ReplicaUtil;
import com.google.inject.Inject;
import com.google.inject.Singleton;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import org.eclipse.jgit.lib.Config;

/**
 * The place of this Gerrit site. It is stopped after the server's indexes are closed, so their content is committed by
 * then.
 */
@Singleton
public final class SavedPlace implements LifecycleListener {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();
  private static final List<String> INDEXES = List.of("accounts", "changes_open", "changes_closed", "groups", "projects");
  private static final Duration DEFAULT_COMMIT_WITHIN = Duration.ofMinutes(5);

  /** Gerrit indexes its own moves after they were made, and Lucene takes some time. */
  private static final Duration MARGIN = Duration.ofMinutes(1);

  private final PlaceFile file;
  private final ComparisonFile comparison;
  private final WithoutRepositoryFile withoutRepository;
  private final Config config;
  private volatile boolean stopped;

  @Inject
  SavedPlace(SitePaths site, @GerritServerConfig Config config) {
    this.config = config;
    Path directory = site.data_dir.resolve("refdb");
    file = new PlaceFile(directory.resolve("moves"), commitWithin(config).map(MARGIN::plus));
    comparison = new ComparisonFile(directory);
    withoutRepository = new WithoutRepositoryFile(directory);
  }

  /** The longest commit interval of all indexes; empty if one of them is not committed before it is closed. */
  static Optional<Duration> commitWithin(Config config) {
    Duration longest = Duration.ZERO;
    for (String index : INDEXES) {
      Duration within = commitWithin(config, index);
      if (within.isNegative()) {
        return Optional.empty();
      }
      longest = within.compareTo(longest) > 0 ? within : longest;
    }
    return Optional.of(longest);
  }

  /** Parses a time like Gerrit does: negative numbers have no unit. */
  private static Duration commitWithin(Config config, String index) {
    try {
      return Duration.ofMillis(
          ConfigUtil.getTimeUnit(config, "index", index, "commitWithin", DEFAULT_COMMIT_WITHIN.toMillis(), MILLISECONDS));
    } catch (IllegalArgumentException e) {
      return Duration.ofMillis(config.getLong("index", index, "commitWithin", DEFAULT_COMMIT_WITHIN.toMillis()));
    }
  }

  /**
   * The file for a server of this site. A replica has none and deletes that of an earlier server, because it does not keep
   * all indexes up to date: the next server that is no replica compares everything.
   */
  Optional<PlaceFile> file() throws IOException {
    if (ReplicaUtil.isReplica(config)) {
      file.forget();
      return Optional.empty();
    }
    return Optional.of(file);
  }

  ComparisonFile comparison() {
    return comparison;
  }

  WithoutRepositoryFile withoutRepository() {
    return withoutRepository;
  }

  /** Following has stopped cleanly. */
  void stopped(Pending pending) throws IOException {
    if (ReplicaUtil.isReplica(config)) {
      return;
    }
    if (pending.leftBehind() > 0) {
      file.forget();
    } else if (pending.done().isPresent()) {
      file.save(pending.done().get(), System.nanoTime() / 1_000_000);
      stopped = true;
    }
  }

  /** What an earlier process could not read says nothing about this one. */
  @Override
  public void start() {
    try {
      withoutRepository.write(List.of());
    } catch (IOException e) { // refdbctl sees that it is older than this process
      logger.atWarning().withCause(e).log("refdb: the list of projects without repository can't be deleted");
    }
  }

  @Override
  public void stop() {
    if (!stopped) {
      return;
    }
    try {
      file.saveCommitted(MARGIN);
    } catch (IOException e) { // the next start goes back further
      logger.atWarning().withCause(e).log("refdb: the place in the list of moves can't be saved");
    }
  }
}
