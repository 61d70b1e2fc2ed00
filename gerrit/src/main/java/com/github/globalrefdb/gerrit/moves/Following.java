package com.github.globalrefdb.gerrit.moves;

import com.github.globalrefdb.gerrit.moves.Action.CheckAgain;
import com.github.globalrefdb.gerrit.moves.Action.CompareProjectList;
import com.google.common.flogger.FluentLogger;
import com.google.gerrit.extensions.events.LifecycleListener;
import com.google.gerrit.server.config.AllUsersName;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.inject.Inject;
import com.google.inject.Injector;
import com.google.inject.ProvisionException;
import java.io.IOException;
import java.util.Optional;

/** Keeps indexes and caches up to date while the server runs. Its start does not block. */
public final class Following implements LifecycleListener {
  private static final FluentLogger logger = FluentLogger.forEnclosingClass();

  private final Injector injector;
  private Pending pending;
  private Workers workers;
  private Follower follower;
  private SavedPlace place;

  /**
   * @param injector provides the other dependencies, but only after the start was checked
   */
  @Inject
  Following(Injector injector) {
    this.injector = injector;
  }

  @Override
  public void start() {
    FollowSettings settings = injector.getInstance(FollowSettings.class);
    injector.getInstance(Caches.class).check();
    place = injector.getInstance(SavedPlace.class);
    pending = new Pending(System::nanoTime);
    MoveMetrics metrics = injector.getInstance(MoveMetrics.class);
    GitRepositoryManager repositories = injector.getInstance(GitRepositoryManager.class);
    ProjectPresence presence = injector.getInstance(ProjectPresence.class);
    RepositoryDirectories directories = new RepositoryDirectories(settings.root(), repositories, presence, System::nanoTime);
    workers = new Workers(pending, new FindingActions(directories, injector.getInstance(GerritActions.class)), metrics);
    Classifier classifier = new Classifier(directories::project, injector.getInstance(AllUsersName.class).get(), settings.guard());
    ComparedCount count = injector.getInstance(ComparedCount.class);
    Optional<PlaceFile> file;
    try {
      file = place.file();
    } catch (IOException e) {
      throw new ProvisionException("refdb: this replica can't delete the saved place in the list of moves", e);
    }
    follower =
        new Follower(settings.socket(), settings.guard(), classifier, file, place.comparison(), pending, metrics, count, System::nanoTime);
    metrics.register(follower, pending);
    pending.later(new CheckAgain(new CompareProjectList(), GerritActions.COMPARE_PROJECT_LIST_EVERY));
    workers.start();
    follower.start();
  }

  @Override
  public void stop() {
    if (follower == null) {
      return;
    }
    try {
      pending.close();
      follower.stop();
      if (workers.stop()) {
        place.stopped(pending);
      }
    } catch (IOException e) { // the next start goes back further
      logger.atWarning().withCause(e).log("refdb: the place in the list of moves can't be saved");
    } catch (InterruptedException e) {
      logger.atWarning().log("refdb: following did not stop in order");
      Thread.currentThread().interrupt();
    }
  }
}
