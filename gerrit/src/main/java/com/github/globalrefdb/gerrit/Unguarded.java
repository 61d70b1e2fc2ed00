package com.github.globalrefdb.gerrit;

import static java.lang.annotation.RetentionPolicy.RUNTIME;

import com.google.inject.BindingAnnotation;
import java.lang.annotation.Retention;

/** Gerrit's own manager of repositories, below the guard. */
@BindingAnnotation
@Retention(RUNTIME)
@interface Unguarded {}
