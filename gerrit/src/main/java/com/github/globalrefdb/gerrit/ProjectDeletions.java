package com.github.globalrefdb.gerrit;

import com.google.gerrit.entities.Project;
import com.google.gerrit.extensions.events.ProjectDeletedListener;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.inject.Inject;

/**
 * Notifies the other sites of a project that was deleted here. The plugin delete-project fires this event after it has
 * deleted the repository.
 */
final class ProjectDeletions implements ProjectDeletedListener {
  private final GitRepositoryManager manager;

  @Inject
  ProjectDeletions(GitRepositoryManager manager) {
    this.manager = manager;
  }

  @Override
  public void onProjectDeleted(Event event) {
    ((GuardedRepositoryManager) manager).deleted(Project.nameKey(event.getProjectName())); // StartCheck has verified the type
  }
}
